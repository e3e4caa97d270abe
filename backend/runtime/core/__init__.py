"""What every part of the runtime is made of: elements, virtual time, seeded chance, hashing, units."""
