-- Which names are judged.
{parts/judged}
