"""`burnish runs`: lists the runs below a folder, verifies, compares and repeats them."""
