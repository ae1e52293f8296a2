"""HTTP in, tokens out: OpenAI schemas, streaming, authentication, metrics."""
