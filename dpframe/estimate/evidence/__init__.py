"""What a release knows: noisy linear facts about the cells of its columns, combined into one estimate."""
