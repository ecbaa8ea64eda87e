"""The training behind the page: the one part of a project that loads torch, in processes of its own."""
