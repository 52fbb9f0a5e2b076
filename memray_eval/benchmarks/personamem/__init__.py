"""PersonaMem: which reply fits what the user has said of themselves."""
