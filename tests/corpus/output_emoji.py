print("caf\u00e9 \u65e5\u672c\u8a9e \U0001f40d\U0001f468\u200d\U0001f469\u200d\U0001f467 \u0000\u0007\x1b[31mred\x1b[0m \ufeff\u202e")
print(ascii("\U0001f40d"), "\N{SNAKE}")
