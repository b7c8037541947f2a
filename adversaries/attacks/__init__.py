"""What an attacker computes."""
