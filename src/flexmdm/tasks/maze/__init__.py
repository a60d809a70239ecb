"""The maze task: a path through a maze that passes given subgoals in order."""
