"""The places of nodes: topologies from generators and files, who plays which role, and the routes between them."""
