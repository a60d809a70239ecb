"""Word problems whose answer is a number: GSM8K, how its answers are read out of a text, and how they are scored."""
