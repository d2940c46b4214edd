"""Private interfaces of other libraries, one file for each library; no other file uses any."""
