"""What each attention head follows: counted on parsed texts."""
