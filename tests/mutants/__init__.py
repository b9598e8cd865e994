"""Mutation testing: small errors put into code, and whether a test that reaches them fails."""
