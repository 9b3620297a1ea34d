﻿print(1)
