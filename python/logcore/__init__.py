"""logcore: Apache Kafka's log as a library."""
