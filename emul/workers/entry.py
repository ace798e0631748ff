"""The function that multiprocessing calls in a new worker; kept apart so that the coordinator imports nothing heavy."""


def run(text: str) -> None:
    import emul.workers.preload  # noqa: F401  (the fork server has it already)
    from emul.workers.process import main

    main(text)
