"""The needle tasks in English and Chinese: InfiniteBench's and RULER's in our own words."""
