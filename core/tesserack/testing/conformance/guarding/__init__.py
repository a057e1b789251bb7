"""What a kernel may not touch: canaries around what it writes, and pages behind what it reads."""
