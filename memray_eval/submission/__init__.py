"""Runs a job on a cluster that this machine is not part of, through Ray's job API."""
