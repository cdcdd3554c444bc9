"""The HTTP server under every stand-in: listening, recording, faults, answering. It knows no protocol above HTTP."""
