-- Which names are judged.
{part_judged}
