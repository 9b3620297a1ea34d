print(2 ** 200, 0.1 + 0.2, float("inf"), -0.0, 1e308 * 10, 10 ** 16 / 3)
from decimal import Decimal, getcontext
from fractions import Fraction
print(Decimal(1) / Decimal(7), getcontext().prec, Fraction(1, 3) + Fraction(1, 6))
import random, statistics
random.seed(1)
print(random.random(), random.sample(range(100), 5), statistics.stdev([1, 2, 4]))
print(len(str(10 ** 4000)))
str(10 ** 5000)
