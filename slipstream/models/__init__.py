"""Architectures, checkpoints (safetensors, GGUF), tokenizer and chat template."""
