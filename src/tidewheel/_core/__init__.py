"""What every layer stands on: keys, hashing, pickling, fault points, retries."""
