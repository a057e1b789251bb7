"""What calls the slots of a card as the core would, without the core."""
