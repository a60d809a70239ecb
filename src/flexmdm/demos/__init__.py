"""Short programs that show what the package does; `flexmdm demo` runs them."""
