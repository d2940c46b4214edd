"""Head strengths chosen by measured faithfulness."""
