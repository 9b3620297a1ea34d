naïve = "ünï"
größe = "日本語" "x" 5 🐍
