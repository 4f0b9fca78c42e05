"""The queues under test, one module each. The module `x` has one class, `Contender`, and imports its queue only inside
methods: the process that watches imports these modules too, and does not have the queues."""
