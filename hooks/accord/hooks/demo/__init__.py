"""The whole product on one machine: `accord up`, and `accord demo` with a replayed fleet."""
