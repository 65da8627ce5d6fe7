//! RabbitMQ behind the ports of Landfall.
