def größe(straße):
    return straße["日本語"] + "🐍" * undefined_naïve
größe({"日本語": "x"})
