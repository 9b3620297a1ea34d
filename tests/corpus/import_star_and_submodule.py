from os.path import *
print(join("a", "b"))
import xml.etree.ElementTree as ET
print(ET.fromstring("<a><b/></a>")[0].tag)
__import__("json").loads("{}")
