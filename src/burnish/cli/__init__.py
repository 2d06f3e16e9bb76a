"""The `burnish` command. Importing it loads neither torch nor transformers; the commands do when they run."""
