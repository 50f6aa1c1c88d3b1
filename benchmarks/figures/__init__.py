"""The page of benchmarks, its charts and the figures of the README, from the result files.

python -m benchmarks.figures        # write all of them
"""
