# coding: base64
cHJpbnQoMSkK
