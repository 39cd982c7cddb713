"""The API that users write programs with: jobs and streams."""
