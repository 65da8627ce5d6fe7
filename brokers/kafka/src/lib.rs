//! Kafka behind the ports of Landfall.
