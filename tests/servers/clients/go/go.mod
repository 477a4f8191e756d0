module pulsar-meta/goclient

go 1.22

require github.com/apache/pulsar-client-go v0.14.0
