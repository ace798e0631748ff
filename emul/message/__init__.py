"""Messages as frames (`wire`), and the verdict on what one holds, made where it is encoded (`verdicts`)."""
