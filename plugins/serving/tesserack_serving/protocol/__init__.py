"""The Open Inference Protocol, version 2: messages, JSON and binary tensors, gRPC. Knows no server and no model."""
