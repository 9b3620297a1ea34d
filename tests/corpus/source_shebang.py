#!/usr/bin/env python3
print(__file__)
1/0
