"""Long runs: results on disk, resumable, in one or several processes."""
