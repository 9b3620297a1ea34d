import sys
sys.stdout = None
print("goes nowhere")
sys.stderr = None
raise ValueError("goes nowhere too")
