def write(run, parts):
    return run.out
