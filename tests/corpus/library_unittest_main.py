import unittest
class Arithmetic(unittest.TestCase):
    def setUp(self):
        print("setUp", self.id())
    def test_adds(self):
        self.assertEqual(1 + 1, 2)
    def test_fails(self):
        self.assertEqual({"a": [1, 2]}, {"a": [1, 3]})
    def test_errors(self):
        raise KeyError("broken")
    @unittest.skip("later")
    def test_skipped(self):
        pass
if __name__ == "__main__":
    import io, re, sys
    real = sys.stderr
    sys.stderr = io.StringIO()
    try:
        unittest.main(verbosity=2)
    finally:
        real.write(re.sub(r"in \d+\.\d+s", "in TIME", sys.stderr.getvalue()))
        sys.stderr = real
