"""The function that multiprocessing calls in a new worker; kept apart so that the coordinator imports nothing heavy."""


def run(text: str) -> None:
    import emul.workers.preload  # noqa: F401  (the fork server has it already)
    from emul.workers.process import main

    main(text)


if __name__ == "__main__":          # of a process that an actor has started, which says on stdin what is to be told
    import sys

    run(sys.stdin.read())
