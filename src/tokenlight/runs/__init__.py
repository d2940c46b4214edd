"""Long runs: kept on disk, resumed, spread over workers."""
