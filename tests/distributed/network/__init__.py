"""Two hosts as network namespaces: a link that fails, and the benchmark of the network."""
