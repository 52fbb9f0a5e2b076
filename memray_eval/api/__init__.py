"""memray_eval from Python: what `import memray_eval` offers is in these modules."""
