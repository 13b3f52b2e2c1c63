"""What a hostile engine, or a hostile byte, can do."""
