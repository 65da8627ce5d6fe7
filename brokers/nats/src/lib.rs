//! NATS JetStream behind the ports of Landfall.
